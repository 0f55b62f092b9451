"""Documents: fields of a record, labels, pairs, detokenizers."""
