-- Two questions over the same two streams, in one job that reads each of them once.
CREATE TABLE quotes (symbol STRING, at TIMESTAMP, bid DECIMAL(10,2), ask DECIMAL(10,2),
    WATERMARK FOR at AS at - INTERVAL '2' SECONDS)
  WITH ('connector' = 'file', 'path' = '.examples/trades/in/quotes', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');
CREATE TABLE trades (trade BIGINT, symbol STRING, at TIMESTAMP, price DECIMAL(10,2), shares BIGINT,
    WATERMARK FOR at AS at - INTERVAL '2' SECONDS)
  WITH ('connector' = 'file', 'path' = '.examples/trades/in/trades', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');
CREATE TABLE valued WITH ('connector' = 'file', 'path' = '.examples/trades/out/valued', 'format' = 'parquet');
CREATE TABLE near WITH ('connector' = 'file', 'path' = '.examples/trades/out/near', 'format' = 'parquet');

-- Which quote was valid when a trade was made? The last one of its symbol before it, unless that is over a minute old.
INSERT INTO valued
SELECT t.trade, t.symbol, t.at, t.price, q.at AS quoted_at, q.bid, q.ask
FROM trades t LEFT ASOF JOIN quotes q
  MATCH_CONDITION (t.at >= q.at)
  ON q.symbol = t.symbol AND q.at >= t.at - INTERVAL '1' MINUTE;

-- Which quotes, shortly before or after, were at about the price of the trade? A band on time, and one on price whose ends
-- are different columns.
INSERT INTO near
SELECT t.trade, t.symbol, t.price, q.at AS quoted_at, q.bid
FROM trades t JOIN quotes q
  ON q.symbol = t.symbol
 AND q.at BETWEEN t.at - INTERVAL '5' SECONDS AND t.at + INTERVAL '5' SECONDS
 AND t.price BETWEEN q.bid - 0.02 AND q.ask + 0.02;
