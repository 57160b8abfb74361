CREATE TABLE flights (carrier STRING, origin STRING, dep TIMESTAMP, dest STRING, delay INT,
  WATERMARK FOR dep AS dep - INTERVAL '2' HOUR) WITH ('connector' = 'memory');
CREATE TABLE weather (station STRING, at TIMESTAMP, temp DOUBLE, wind DOUBLE, day DATE,
  WATERMARK FOR at AS at - INTERVAL '30' MINUTE) WITH ('connector' = 'memory');
SET allowed_lateness = '5 minutes';
SET max_rows = 100000;
SELECT f.carrier, f.dest, w.temp * 1.8 + 32 AS fahrenheit
FROM flights f LEFT JOIN weather w
  ON upper(f.origin) = w.station
 AND w.at > f.dep - INTERVAL '1' HOUR AND w.at <= f.dep
 AND to_date(f.dep) = to_date(w.at)
 AND f.dest <> 'JFK'
 AND w.temp IS NOT NULL
 AND (w.wind > f.delay OR f.delay IS NULL)
WHERE f.carrier IN ('AA', 'UA') AND (w.temp IS NULL OR w.temp < 40);
