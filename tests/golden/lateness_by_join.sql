CREATE TABLE clicks (ad BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '20' SECONDS) WITH ('connector' = 'memory');
CREATE TABLE shown (ad BIGINT, at TIMESTAMP, WATERMARK FOR at AS at) WITH ('connector' = 'memory');
SET lateness = 'join';
SET allowed_lateness = '10 SECONDS';
SELECT s.ad, s.at, c.at AS clicked FROM shown s LEFT JOIN clicks c
ON c.ad = s.ad AND c.at BETWEEN s.at AND s.at + INTERVAL '5' MINUTES;
