//! What the tables hold: row types shared by both engines.
