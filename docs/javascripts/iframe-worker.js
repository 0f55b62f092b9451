// Browsers refuse web workers of pages from file://. There a hidden frame runs the script of the search.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inner = frame.contentWindow
      this.inner.document.open()
      this.inner.document.write(
        "<script>window.postMessage = data => parent.postMessage(data, '*')</" + "script>" +
        `<script src="${url}"></` + "script>"
      )
      this.inner.document.close()
      this.ready = new Promise(done => frame.addEventListener("load", done))
      addEventListener("message", event => {
        if (event.source === this.inner)
          this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      })
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {}
  }
