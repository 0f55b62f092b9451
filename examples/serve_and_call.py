"""Serve and call: a server on a free port, called with OpenAI's client from the same process.

python examples/serve_and_call.py [MODEL]
"""

import socket
import sys
import threading
import time

import openai
import uvicorn

import unmask
from unmask.serve.app import create_app
from unmask.serve.execution.engine import Engine

MODEL = sys.argv[1] if len(sys.argv) > 1 else "stories"
listening = socket.create_server(("127.0.0.1", 0))
address = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
model = unmask.load(MODEL)
with Engine({"model": model}) as engine:
    server = uvicorn.Server(uvicorn.Config(create_app(engine), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.05)
    with openai.OpenAI(base_url=address, api_key="none") as client:
        answer = client.completions.create(model="model", prompt="One day", max_tokens=16, seed=0)
        print(answer.choices[0].text, answer.usage)
        if model.tokenizer.chat_template:
            asked = [{"role": "user", "content": "Spell 42."}]
            talk = client.chat.completions
            stream = talk.create(model="model", messages=asked, max_tokens=16, seed=0, stream=True)
            print("".join(chunk.choices[0].delta.content for chunk in stream))
    server.should_exit = True
    thread.join()
