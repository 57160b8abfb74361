CREATE TABLE trades (symbol STRING, at TIMESTAMP, price DOUBLE, WATERMARK FOR at AS at - INTERVAL '10' SECONDS)
  WITH ('connector' = 'file', 'path' = 'trades', 'format' = 'json');
CREATE TABLE quotes (symbol STRING, quoted TIMESTAMP, bid DOUBLE, WATERMARK FOR quoted AS quoted - INTERVAL '1' MINUTE)
  WITH ('connector' = 'file', 'path' = 'quotes', 'format' = 'json', 'rows_per_second' = '200');
SELECT t.symbol, t.at, t.price, q.quoted, q.bid FROM trades t
LEFT ASOF JOIN quotes q MATCH_CONDITION (t.at >= q.quoted) ON q.symbol = t.symbol AND q.bid > 0 AND t.price > 0
WHERE q.bid < 100 AND t.symbol <> '';
