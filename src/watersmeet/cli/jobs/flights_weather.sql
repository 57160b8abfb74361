-- Each flight out of New York in 2013 with the weather at its airport, observed within the hour before its scheduled
-- departure. `watersmeet demo` prepares the data and runs this; after that it also runs by itself, from the same
-- directory:
--
--     watersmeet run examples/flights_weather/flights_weather.sql --finish

CREATE MAPPING flights (
  carrier STRING, flight BIGINT, tailnum STRING, origin STRING, dest STRING, distance BIGINT,
  dep_delay BIGINT, sched_dep TIMESTAMP
) TYPE File OPTIONS ('path' = '.demo/streams/flights', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');

CREATE MAPPING weather (
  origin STRING, observed TIMESTAMP, temp DOUBLE, wind_dir BIGINT, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE
) TYPE File OPTIONS ('path' = '.demo/streams/weather', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');

CREATE MAPPING flights_with_weather
  TYPE File OPTIONS ('path' = '.demo/flights_weather/result', 'format' = 'parquet');

-- A flight is announced up to two hours after its scheduled departure, an observation up to three hours after it
-- was made: that is how far behind the newest row each watermark stays.
CREATE VIEW f AS
  SELECT * FROM TABLE(IMPOSE_ORDER(TABLE flights, DESCRIPTOR(sched_dep), INTERVAL '2' HOURS));
CREATE VIEW w AS
  SELECT * FROM TABLE(IMPOSE_ORDER(TABLE weather, DESCRIPTOR(observed), INTERVAL '3' HOURS));

-- Half open: stations observe on the hour, and a flight at 09:00 is to meet the observation of 09:00, not that of
-- 08:00 as well. So no flight meets two, and the result has one row per flight.
INSERT INTO flights_with_weather
SELECT f.carrier, f.flight, f.tailnum, f.origin, f.dest, f.sched_dep, f.dep_delay,
       w.observed, w.temp, w.wind_speed, w.precip, w.visib
FROM f LEFT JOIN w
  ON w.origin = f.origin
 AND f.sched_dep >= w.observed
 AND f.sched_dep < w.observed + INTERVAL '1' HOUR;
