//! What is sold: shapes, their price of the moment, and how many the fleet could serve now.

pub mod catalog;
pub mod seed;
pub mod shape;
