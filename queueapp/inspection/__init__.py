"""Inspection: the read path of every skin (admin, terminal, live pages). It changes nothing and knows no skin."""
