-- Sorts rows by their labels, groups them, and joins the groups with the rows: once each, in memory.
CREATE FUNCTION pg_temp.label(number bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT 'customers of the northern line, number ' || lpad(number::text, 12, '0')
    || ', delivered before noon and paid in full'
$$;
SET enable_mergejoin = off;
SELECT count(*), sum(place * (key % 1000)) FROM (
  SELECT key, row_number() OVER (ORDER BY label COLLATE "C") AS place FROM (
    SELECT i * 7919 % 1000000 AS key, pg_temp.label(i * 7919 % 1000000) AS label
    FROM generate_series(0::bigint, 999999) AS i) AS rows) AS placed;
SET enable_sort = off;
SELECT count(*), sum(members), sum(total * members) FROM (
  SELECT label, count(*) AS members, sum(i) AS total FROM (
    SELECT i, pg_temp.label(i / 2) AS label FROM generate_series(0::bigint, 999999) AS i) AS rows
  GROUP BY label) AS grouped;
SELECT count(*), sum(one.i * (other.i % 1000)) FROM
  (SELECT i, pg_temp.label(i) AS label FROM generate_series(0::bigint, 499999) AS i) AS one
  JOIN (SELECT i, pg_temp.label(i * 3 % 500000) AS label FROM generate_series(0::bigint, 499999) AS i) AS other
  USING (label);
