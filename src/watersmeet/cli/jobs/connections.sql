-- Quick turnarounds: an aircraft that left New York, landed elsewhere, and is seen departing from New York again
-- within four hours of that landing. One stream joined with itself, ordered by another event time on each side.
--
--     watersmeet demo --query connections
--     watersmeet run examples/flights_weather/connections.sql --finish

-- One record per flight, sent when it has landed. Cancelled flights never departed, diverted ones have no landing:
-- their times are NULL, and such rows are counted and dropped.
CREATE MAPPING movements (
  carrier STRING, flight BIGINT, tailnum STRING, origin STRING, dest STRING, departed TIMESTAMP, landed TIMESTAMP
) TYPE File OPTIONS ('path' = '.demo/streams/movements', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');

CREATE MAPPING connections
  TYPE File OPTIONS ('path' = '.demo/connections/result', 'format' = 'parquet');

-- Records come up to half an hour after the landing, but as late after the departure as the flight was long.
CREATE VIEW inbound AS
  SELECT * FROM TABLE(IMPOSE_ORDER(TABLE movements, DESCRIPTOR(landed), INTERVAL '30' MINUTES));
CREATE VIEW outbound AS
  SELECT * FROM TABLE(IMPOSE_ORDER(TABLE movements, DESCRIPTOR(departed), INTERVAL '13' HOURS));

INSERT INTO connections
SELECT i.tailnum, i.carrier, i.flight AS inbound_flight, i.dest AS away, i.landed,
       o.flight AS next_flight, o.origin AS next_origin, o.dest AS next_dest, o.departed
FROM inbound i JOIN outbound o
  ON o.tailnum = i.tailnum
 AND o.departed BETWEEN i.landed AND i.landed + INTERVAL '4' HOURS;
