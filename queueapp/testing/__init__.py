"""For the tests of host projects."""
