//! `/v1/instances`: what tenants rent.

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::AppState;

mod actions;
mod create;
mod errors;
mod read;
mod render;
pub mod request;
pub mod view;
mod wait;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(read::list_instances, create::create_instance))
        .routes(routes!(read::get_instance, actions::patch_instance, actions::delete_instance))
        .routes(routes!(actions::start_instance))
        .routes(routes!(actions::stop_instance))
        .routes(routes!(actions::restart_instance))
        .routes(routes!(wait::wait_instance))
        .routes(routes!(read::list_instance_events))
        .routes(routes!(read::get_instance_logs))
        .routes(routes!(read::get_instance_residency))
}
