"""Orders, payments and shipments: three streams, with late and missing rows."""
