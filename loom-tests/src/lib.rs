//! Models of everything tidegate's threads share. See `README.md`; the models are in
//! `tests/models/`, one file per shared file of the crate.
