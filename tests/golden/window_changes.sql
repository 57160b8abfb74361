-- Windows whose results change until they close: of a stream of changes, and of two streams that are joined.
CREATE TABLE bids (item BIGINT, price DECIMAL(12,2), at TIMESTAMP, d INT, WATERMARK FOR at AS at - INTERVAL '1' MINUTE)
  WITH ('connector' = 'file', 'path' = 'bids', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE views (item BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '10' SECONDS)
  WITH ('connector' = 'file', 'path' = 'views', 'format' = 'json');
CREATE TABLE highest WITH ('connector' = 'file', 'path' = 'out/highest', 'format' = 'json');
CREATE TABLE busy WITH ('connector' = 'file', 'path' = 'out/busy', 'format' = 'json');
INSERT INTO highest SELECT window_start, item, max(price) AS price, count(*) AS n
  FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' MINUTES)) GROUP BY window_start, window_end, item;
INSERT INTO busy SELECT window_end, count(*) AS n FROM TABLE(HOP(
    (SELECT v.at FROM views v JOIN bids b ON b.item = v.item AND b.at BETWEEN v.at AND v.at + INTERVAL '5' MINUTES),
    DESCRIPTOR(at), INTERVAL '2' MINUTES, INTERVAL '6' MINUTES
  )) GROUP BY window_start, window_end EMIT CHANGES;
