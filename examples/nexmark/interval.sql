-- Nexmark over streams: every row that goes out is final, and what is kept is bounded by time. The lag is that of Nexmark's
-- own declarations for Flink. Event time has 1,000 events a second here: an auction is open for up to 3.4 s, and people
-- sell and bid for 50 s.
CREATE TABLE person (id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,
    dateTime TIMESTAMP, extra STRING, WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECONDS)
  WITH ('connector' = 'file', 'path' = '.examples/nexmark/in/person', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');
CREATE TABLE auction (id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
    dateTime TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING,
    WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECONDS)
  WITH ('connector' = 'file', 'path' = '.examples/nexmark/in/auction', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');
CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, dateTime TIMESTAMP, extra STRING,
    WATERMARK FOR dateTime AS dateTime - INTERVAL '4' SECONDS)
  WITH ('connector' = 'file', 'path' = '.examples/nexmark/in/bid', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');

-- Every bid with its auction, if it came while that was open. The interval says how long rows are kept: no auction is open
-- for longer; expires is a value like any other and bounds nothing.
CREATE VIEW bids_in_time AS
  SELECT a.id, a.seller, a.category, a.dateTime AS opened, a.expires, b.bidder, b.price, b.dateTime AS bid_at
  FROM auction a JOIN bid b
    ON b.auction = a.id AND b.dateTime BETWEEN a.dateTime AND a.dateTime + INTERVAL '4' SECONDS
   AND b.dateTime <= a.expires;
-- Of every auction its highest price, and who bid it, of equal ones first. An auction has one time of opening, and so is in
-- one window: its row comes when no more bids can.
CREATE VIEW winning AS
  SELECT window_start, window_end, id, category, max(price) AS final,
         max_by(bidder, price * 10000 - (unix_millis(bid_at) - unix_millis(opened))) AS winner
  FROM TABLE(TUMBLE(TABLE bids_in_time, DESCRIPTOR(opened), INTERVAL '10' SECONDS))
  GROUP BY window_start, window_end, id, category;

-- q3: who sells in OR, ID or CA in category 10, and which auctions? Of people who came within the last minute. Ids are in
-- use a little before there is anyone or anything of that id, so the interval begins before.
CREATE TABLE q3 WITH ('connector' = 'file', 'path' = '.examples/nexmark/out/q3', 'format' = 'parquet');
INSERT INTO q3
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p
  ON a.seller = p.id AND a.dateTime BETWEEN p.dateTime - INTERVAL '2' SECONDS AND p.dateTime + INTERVAL '1' MINUTE
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- q4: the average winning price per category, of the auctions that were opened within the same ten seconds.
CREATE TABLE q4 WITH ('connector' = 'file', 'path' = '.examples/nexmark/out/q4', 'format' = 'parquet');
INSERT INTO q4
SELECT window_end, category, avg(final) AS price
FROM TABLE(TUMBLE(TABLE winning, DESCRIPTOR(window_start), INTERVAL '10' SECONDS))
GROUP BY window_start, window_end, category;

-- q7: the highest bids of every ten seconds.
CREATE TABLE q7 WITH ('connector' = 'file', 'path' = '.examples/nexmark/out/q7', 'format' = 'parquet');
INSERT INTO q7
SELECT b.auction, b.bidder, b.price, b.dateTime, b.extra
FROM bid b JOIN (
    SELECT max(price) AS highest, window_end
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECONDS))
    GROUP BY window_start, window_end
  ) h
  ON b.price = h.highest AND b.dateTime BETWEEN h.window_end - INTERVAL '10' SECONDS AND h.window_end;

-- q8: who came and opened an auction within the same ten seconds?
CREATE TABLE q8 WITH ('connector' = 'file', 'path' = '.examples/nexmark/out/q8', 'format' = 'parquet');
INSERT INTO q8
SELECT p.id, p.name, p.window_start
FROM (
    SELECT id, name, window_start, window_end
    FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECONDS))
    GROUP BY id, name, window_start, window_end
  ) p
JOIN (
    SELECT seller, window_start, window_end
    FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECONDS))
    GROUP BY seller, window_start, window_end
  ) a
  ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end;

-- q9: the winning bid of every auction.
CREATE TABLE q9 WITH ('connector' = 'file', 'path' = '.examples/nexmark/out/q9', 'format' = 'parquet');
INSERT INTO q9
SELECT id, category, final, winner FROM winning;

-- q20: every bid with its auction, of category 10.
CREATE TABLE q20 WITH ('connector' = 'file', 'path' = '.examples/nexmark/out/q20', 'format' = 'parquet');
INSERT INTO q20
SELECT b.auction, b.bidder, b.price, b.channel, b.dateTime AS bid_at, b.extra AS bid_extra,
       a.itemName, a.description, a.initialBid, a.reserve, a.dateTime AS opened, a.expires, a.seller, a.category, a.extra
FROM bid b JOIN auction a
  ON b.auction = a.id AND b.dateTime BETWEEN a.dateTime - INTERVAL '1' SECOND AND a.dateTime + INTERVAL '4' SECONDS
WHERE a.category = 10;
