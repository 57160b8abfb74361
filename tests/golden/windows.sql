-- One aggregation over a stream: hopping windows, a filter, HAVING, an aggregate that Spark computes.
CREATE MAPPING clicks (page STRING, ms BIGINT, at TIMESTAMP) TYPE File
  OPTIONS ('path' = 'clicks', 'format' = 'json', 'rows_per_second' = '100');
CREATE VIEW c AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE clicks, DESCRIPTOR(at), INTERVAL '5' SECONDS));
SELECT window_start, window_end, lower(page) AS page, count(*) AS n, sum(ms) / count(*) AS mean,
       percentile_approx(ms, 0.9) AS slow
FROM TABLE(HOP(TABLE c, DESCRIPTOR(at), INTERVAL '1' MINUTE, INTERVAL '10' MINUTES))
WHERE ms >= 0
GROUP BY window_start, window_end, lower(page)
HAVING count(*) > 3;
