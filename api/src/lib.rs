//! Tarn control plane: HTTP API, workers and the tarn command.
