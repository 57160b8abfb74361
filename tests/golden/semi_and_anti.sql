CREATE TABLE clicks (id BIGINT, page STRING, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '10' SECONDS)
  WITH ('connector' = 'file', 'path' = 'clicks', 'format' = 'json');
CREATE TABLE buys (click BIGINT, bought TIMESTAMP, WATERMARK FOR bought AS bought - INTERVAL '1' MINUTE)
  WITH ('connector' = 'file', 'path' = 'buys', 'format' = 'json');
CREATE TABLE bots (click BIGINT, seen TIMESTAMP, WATERMARK FOR seen AS seen - INTERVAL '1' MINUTE)
  WITH ('connector' = 'file', 'path' = 'bots', 'format' = 'json');
SELECT c.id, c.page FROM clicks c
WHERE EXISTS (SELECT 1 FROM buys b WHERE b.click = c.id AND b.bought BETWEEN c.at AND c.at + INTERVAL '1' HOUR)
  AND NOT EXISTS (SELECT 1 FROM bots x WHERE x.click = c.id AND x.seen BETWEEN c.at - INTERVAL '5' MINUTES AND c.at)
  AND c.page <> '/';
