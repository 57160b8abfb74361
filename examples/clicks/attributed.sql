-- Which impression is each click put down to? The last one of that ad to that user in the half hour before the click;
-- clicks without one come out as well, with NULLs.
CREATE TABLE impressions (ad BIGINT, user BIGINT, at TIMESTAMP, cost BIGINT,
    WATERMARK FOR at AS at - INTERVAL '30' SECONDS)
  WITH ('connector' = 'file', 'path' = '.examples/clicks/in/impressions', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');
CREATE TABLE clicks (click BIGINT, ad BIGINT, user BIGINT, at TIMESTAMP,
    WATERMARK FOR at AS at - INTERVAL '30' SECONDS)
  WITH ('connector' = 'file', 'path' = '.examples/clicks/in/clicks', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');
CREATE TABLE attributed
  WITH ('connector' = 'file', 'path' = '.examples/clicks/out/attributed', 'format' = 'parquet');

INSERT INTO attributed
SELECT c.click, c.ad, c.user, c.at, i.at AS shown_at, i.cost
FROM clicks c LEFT ASOF JOIN impressions i
  MATCH_CONDITION (c.at >= i.at)
  ON i.ad = c.ad AND i.user = c.user AND i.at >= c.at - INTERVAL '30' MINUTES;
