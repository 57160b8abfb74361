-- The sessions of a web shop's visitors, and what was bought in each: a session lasts while views come no more than half
-- an hour apart.
CREATE TABLE views (visitor BIGINT, at TIMESTAMP, page STRING, WATERMARK FOR at AS at - INTERVAL '1' MINUTE)
  WITH ('connector' = 'file', 'path' = '.examples/sessions/in/views', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');
CREATE TABLE purchases (visitor BIGINT, at TIMESTAMP, amount BIGINT, WATERMARK FOR at AS at - INTERVAL '1' MINUTE)
  WITH ('connector' = 'file', 'path' = '.examples/sessions/in/purchases', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');
CREATE TABLE bought WITH ('connector' = 'file', 'path' = '.examples/sessions/out/bought', 'format' = 'parquet');

CREATE VIEW sessions AS
  SELECT window_start, window_end, visitor, count(*) AS views, count_if(page = 'item') AS items
  FROM TABLE(SESSION(TABLE views, DESCRIPTOR(at), INTERVAL '30' MINUTES))
  GROUP BY window_start, window_end, visitor;

-- A session's row comes when the session has ended, long after a purchase in it. So a purchase is kept while a session is
-- open that began before it; which of them are, the watermark of window_start says.
INSERT INTO bought
SELECT s.visitor, s.window_start AS started, s.window_end AS ended, s.views, s.items, p.amount
FROM sessions s LEFT JOIN purchases p
  ON p.visitor = s.visitor
 AND p.at BETWEEN s.window_start AND s.window_end;
