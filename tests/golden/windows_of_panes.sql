-- Overlapping windows from partial aggregates of panes, as wide as the greatest common divisor of size and slide.
CREATE MAPPING clicks (page STRING, ms BIGINT, price DECIMAL(10,2), at TIMESTAMP) TYPE File
  OPTIONS ('path' = 'clicks', 'format' = 'json', 'rows_per_second' = '100000');
CREATE VIEW c AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE clicks, DESCRIPTOR(at), INTERVAL '5' SECONDS));
SELECT window_end, page, count(*) AS n, avg(price) AS price, max_by(ms, at) FILTER (WHERE ms > 0) AS last
FROM TABLE(HOP(TABLE c, DESCRIPTOR(at), INTERVAL '40' SECONDS, INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, page;
