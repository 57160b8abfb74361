-- Nexmark over tables without end: joins without a bound on time, as the benchmark has them. Rows are kept for good, and
-- results are changes: what was put out is taken back when it is true no more. (q7 and q8 have windows, and so have bounds:
-- they are in interval.sql.)
SET output_mode = changelog;
CREATE TABLE person (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING, emailAddress STRING, creditCard STRING, city STRING,
    state STRING, dateTime TIMESTAMP, extra STRING)
  WITH ('connector' = 'file', 'path' = '.examples/nexmark/in/person', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');
CREATE TABLE auction (id BIGINT PRIMARY KEY NOT ENFORCED, itemName STRING, description STRING, initialBid BIGINT,
    reserve BIGINT, dateTime TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING)
  WITH ('connector' = 'file', 'path' = '.examples/nexmark/in/auction', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');
CREATE TABLE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, dateTime TIMESTAMP, extra STRING, d INT)
  WITH ('connector' = 'file', 'path' = '.examples/nexmark/in/bid', 'format' = 'parquet', 'maxFilesPerTrigger' = '1',
        'diff.column' = 'd');

-- q3: who sells in OR, ID or CA in category 10, and which auctions?
CREATE TABLE q3 WITH ('connector' = 'file', 'path' = '.examples/nexmark/out/q3', 'format' = 'parquet');
INSERT INTO q3
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- q4: the average winning price per category.
CREATE TABLE q4 WITH ('connector' = 'file', 'path' = '.examples/nexmark/out/q4', 'format' = 'parquet');
INSERT INTO q4
SELECT category, avg(final) AS price
FROM (
    SELECT max(b.price) AS final, a.id, a.category
    FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
    GROUP BY a.id, a.category
  ) q
GROUP BY category;

-- q9: the winning bid of every auction.
CREATE TABLE q9 WITH ('connector' = 'file', 'path' = '.examples/nexmark/out/q9', 'format' = 'parquet');
INSERT INTO q9
SELECT id, seller, category, opened, expires, bidder, price, bid_at
FROM (
    SELECT a.id, a.seller, a.category, a.dateTime AS opened, a.expires, b.bidder, b.price, b.dateTime AS bid_at,
           ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime) AS place
    FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
  ) ranked
WHERE place <= 1;

-- q20: every bid with its auction, of category 10.
CREATE TABLE q20 WITH ('connector' = 'file', 'path' = '.examples/nexmark/out/q20', 'format' = 'parquet');
INSERT INTO q20
SELECT b.auction, b.bidder, b.price, b.channel, b.dateTime AS bid_at, b.extra AS bid_extra,
       a.itemName, a.description, a.initialBid, a.reserve, a.dateTime AS opened, a.expires, a.seller, a.category, a.extra
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10;
