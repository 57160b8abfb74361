-- Final rows of windows over rows that come and go: of a stream of changes; and windows over these, whose rows only come.
CREATE TABLE bids (item BIGINT, price DECIMAL(12,2), at TIMESTAMP, d INT, WATERMARK FOR at AS at - INTERVAL '1' MINUTE)
  WITH ('connector' = 'file', 'path' = 'bids', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE hourly WITH ('connector' = 'file', 'path' = 'out/hourly', 'format' = 'json');
CREATE VIEW highest AS SELECT window_end, item, max(price) AS price
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' MINUTES)) GROUP BY window_start, window_end, item;
INSERT INTO hourly SELECT window_end, item, avg(price) AS price
  FROM TABLE(TUMBLE(TABLE highest, DESCRIPTOR(window_end), INTERVAL '1' HOUR)) GROUP BY window_start, window_end, item
  EMIT FINAL;
