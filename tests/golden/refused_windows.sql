-- fail=aggregate-function
CREATE MAPPING clicks (page STRING, ms BIGINT, at TIMESTAMP) TYPE File OPTIONS ('path' = 'clicks', 'format' = 'json');
CREATE VIEW c AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE clicks, DESCRIPTOR(at), INTERVAL '5' SECONDS));
CREATE VIEW slow AS SELECT window_end, approx_count_distinct(page) AS pages, first(ms) AS ms
FROM TABLE(TUMBLE(TABLE c, DESCRIPTOR(at), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end;
SELECT slow.pages, c.page FROM slow JOIN c ON c.at BETWEEN slow.window_end - INTERVAL '1' MINUTE AND slow.window_end;
