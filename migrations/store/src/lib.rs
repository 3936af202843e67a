//! The database as the rest of Tarn sees it: connect by URL, one transaction entry.
