//! Sellable shapes.

use sqlx::{query, query_as};
use tarn_protocol::ids::OfferId;
use tarn_rows::offers::{OfferRaw, OfferRow};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_offer {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            OfferRaw,
            "SELECT id, title, cards, metered_cards, card_memory_bytes, model_contains, link_class_min, listed,
                 created_at
             FROM offers " + $tail
            $(, $arg)*
        )
    };
}

/// `false`: an offer of this id is there already; nothing changed.
pub async fn insert_offer(conn: &mut Conn, offer: &OfferRow) -> Result<bool> {
    let row = put(offer)?;
    let done = query!(
        "INSERT INTO offers (id, title, cards, metered_cards, card_memory_bytes, model_contains, link_class_min,
             listed, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO NOTHING",
        row.id,
        row.title,
        row.cards,
        row.metered_cards,
        row.card_memory_bytes,
        row.model_contains,
        row.link_class_min,
        row.listed,
        row.created_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn offer(conn: &mut Conn, id: &OfferId) -> Result<Option<OfferRow>> {
    select_offer!("WHERE id = $1", id.as_str()).fetch_optional(conn).await?.map(take).transpose()
}

/// All of them, listed or not: a handful.
pub async fn offers(conn: &mut Conn) -> Result<Vec<OfferRow>> {
    take_all(select_offer!("ORDER BY id").fetch_all(conn).await?)
}

pub async fn set_offer_listed(conn: &mut Conn, id: &OfferId, listed: bool) -> Result<bool> {
    let done = query!("UPDATE offers SET listed = $2 WHERE id = $1", id.as_str(), listed);
    Ok(done.execute(conn).await?.rows_affected() == 1)
}
