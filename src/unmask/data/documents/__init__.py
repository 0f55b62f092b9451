"""Documents: fields of a record, class labels, pairs, detokenizers, read errors."""
