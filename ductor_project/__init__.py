"""The example project: a host that installs Ductor the way any project does."""
