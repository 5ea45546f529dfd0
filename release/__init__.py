"""What a release is made of, and where it would go: `make release` (docs/releasing.md). Nothing is published unasked."""
