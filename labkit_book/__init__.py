"""The book's own package, in the same wheel as labkit: what the book needs and labkit does not. labkit never imports it."""
