-- fail=unbounded-state
CREATE TABLE l (k STRING, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '5' SECONDS) WITH ('connector' = 'memory');
CREATE TABLE r (k STRING, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '5' SECONDS) WITH ('connector' = 'memory');
SELECT l.at FROM l LEFT ASOF JOIN r MATCH_CONDITION (l.at <= r.at) ON l.k = r.k;
