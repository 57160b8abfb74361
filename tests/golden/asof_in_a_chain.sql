CREATE TABLE clicks (id BIGINT, page STRING, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '10' SECONDS)
  WITH ('connector' = 'file', 'path' = 'clicks', 'format' = 'json');
CREATE TABLE views (page STRING, seen TIMESTAMP, WATERMARK FOR seen AS seen - INTERVAL '1' MINUTE)
  WITH ('connector' = 'file', 'path' = 'views', 'format' = 'json');
CREATE TABLE temps (measured TIMESTAMP, degrees DOUBLE, WATERMARK FOR measured AS measured - INTERVAL '20' SECONDS)
  WITH ('connector' = 'file', 'path' = 'temps', 'format' = 'json');
SET watermark_rule = limit;
SELECT c.id, v.seen, t.degrees FROM clicks c
JOIN views v ON v.page = c.page AND v.seen BETWEEN c.at - INTERVAL '1' HOUR AND c.at
ASOF JOIN temps t MATCH_CONDITION (t.measured > c.at AND t.measured <= c.at + INTERVAL '5' MINUTES);
