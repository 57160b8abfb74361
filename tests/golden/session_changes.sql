-- Sessions of rows that come and go: changes of a stream of changes, and final rows of two streams that are joined.
CREATE TABLE bids (item BIGINT, price DECIMAL(12,2), at TIMESTAMP, d INT, WATERMARK FOR at AS at - INTERVAL '1' MINUTE)
  WITH ('connector' = 'file', 'path' = 'bids', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE views (item BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '10' SECONDS)
  WITH ('connector' = 'file', 'path' = 'views', 'format' = 'json');
CREATE TABLE rushes WITH ('connector' = 'file', 'path' = 'out/rushes', 'format' = 'json');
CREATE TABLE busy WITH ('connector' = 'file', 'path' = 'out/busy', 'format' = 'json');
INSERT INTO rushes SELECT window_start, window_end, item, max(price) AS price, count(*) AS n
  FROM TABLE(SESSION(TABLE bids, DESCRIPTOR(at), INTERVAL '2' MINUTES)) GROUP BY window_start, window_end, item
  EMIT CHANGES;
INSERT INTO busy SELECT window_end, count(*) AS n FROM TABLE(SESSION(
    (SELECT v.at FROM views v JOIN bids b ON b.item = v.item AND b.at BETWEEN v.at AND v.at + INTERVAL '5' MINUTES),
    DESCRIPTOR(at), INTERVAL '1' MINUTE
  )) GROUP BY window_start, window_end EMIT FINAL;
