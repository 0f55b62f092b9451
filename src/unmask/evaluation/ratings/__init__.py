"""Human evaluation: comparisons of texts, a file of votes, and a report of preferences."""
