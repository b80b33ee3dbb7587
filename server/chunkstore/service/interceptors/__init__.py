"""What happens around every call, outermost first: errors, decoding, admission, tenancy, response size."""
