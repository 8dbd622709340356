pub mod functions;
pub mod schema;
