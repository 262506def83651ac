"""Analytical statements as people, ORMs and reporting tools write them, for the tests that none of them asks."""

from typing import Final

#: Ten steps of dbt's style, each with thirty columns.
_PASSED: Final = ", ".join(f"c{number}" for number in range(26))


def transformed(steps: int) -> str:
    """Return a chain of common table expressions that hand on columns and compute a few."""
    parts = [f"source AS (SELECT id, customer_id, amount, created_at, {_PASSED} FROM raw_orders)"]
    before = "source"
    for number in range(1, steps):
        computed = (
            f"SELECT id, customer_id, coalesce(amount, 0) AS amount, created_at, {_PASSED}",
            f"SELECT id, customer_id, CASE WHEN amount < 0 THEN 0 ELSE amount END AS amount, created_at, {_PASSED}",
            f"SELECT b.*, row_number() OVER (PARTITION BY b.customer_id ORDER BY b.created_at, b.id) AS n{number}",
            f"SELECT b.id, b.customer_id, amount, created_at, {_PASSED}, lag(b.id) OVER (ORDER BY b.id) AS p{number}",
        )[number % 4]
        ending = "WHERE b.id IS NOT NULL AND b.customer_id IS NOT NULL AND b.id > 0"
        parts.append(f"step{number} AS ({computed} FROM {before} b {ending})")
        before = f"step{number}"
    return f"WITH {', '.join(parts)} SELECT * FROM {before} WHERE id > 0 ORDER BY id"


def grouped(steps: int) -> str:
    """Return a chain in which each expression groups the one before by the same key."""
    parts = ["g0 AS (SELECT id, sum(amount) AS amount FROM orders GROUP BY id)"]
    parts += [
        f"g{number} AS (SELECT g.id, sum(g.amount) AS amount, max(g.amount) AS most FROM g{number - 1} g"
        f" JOIN customers c ON c.id = g.id WHERE g.id IS NOT NULL GROUP BY g.id)"
        for number in range(1, steps)
    ]
    return f"WITH {', '.join(parts)} SELECT id, amount FROM g{steps - 1} ORDER BY id"


def joined(number: int) -> str:
    """Return expressions side by side, which the last query joins by their key."""
    parts = (
        f"m{each} AS (SELECT id, count(*) AS n FROM orders WHERE c{each % 26} = 1 GROUP BY id)"
        for each in range(number)
    )
    joins = "".join(f" LEFT JOIN m{each} ON m{each}.id = c.id" for each in range(number))
    columns = "".join(f", coalesce(m{each}.n, 0) AS n{each}" for each in range(number))
    return f"WITH {', '.join(parts)} SELECT c.id{columns} FROM customers c{joins}"


def wrapped(levels: int) -> str:
    """Return a query as Metabase and ORMs nest it: each level names all columns of the one within."""
    query = 'SELECT "o"."id" AS "id", "o"."amount" AS "amount", "o"."created_at" AS "created_at" FROM "orders" "o"'
    for _ in range(levels):
        query = (
            'SELECT "source"."id" AS "id", "source"."amount" AS "amount", "source"."created_at" AS "created_at"'
            f' FROM ({query}) AS "source" WHERE "source"."id" > 0 AND ("source"."amount" > 0 OR "source"."amount" < 9)'
        )
    return query


_COLUMNS: Final = ", ".join(f"c{number % 26} AS a{number}" for number in range(300))
_QUALIFIED: Final = ", ".join(f"o.c{number % 26} AS orders_c{number}" for number in range(60))
_IDS: Final = ", ".join(str(number) for number in range(5000))
_WORDS: Final = ", ".join(f"'word{number}'" for number in range(5000))
_STATES: Final = " ".join(f"WHEN c1 = {number} THEN 'state {number}'" for number in range(60))
_UNION: Final = " UNION ALL ".join(f"SELECT id, amount, 'c{n}' AS what FROM orders WHERE c{n} = 1" for n in range(20))
_PIVOT: Final = ", ".join(f"sum(CASE WHEN c1 = {number} THEN amount ELSE 0 END) AS p{number}" for number in range(40))
_OR: Final = " OR ".join(f"(customer_id = {number} AND c1 = {number})" for number in range(150))

#: For both databases.
STATEMENTS: Final = {
    "steps of dbt": transformed(10),
    "twenty steps": transformed(20),
    "grouped again": grouped(6),
    "grouped ten times": grouped(10),
    "twenty side by side": joined(20),
    "nested by a tool": wrapped(3),
    "nested six times": wrapped(6),
    "nested ten times": wrapped(10),
    "wide": f"SELECT {_COLUMNS} FROM orders",
    "wide and wrapped": f"SELECT count(*) FROM (SELECT {_COLUMNS} FROM orders) AS subquery",
    "wide, by SQLAlchemy": (
        f"SELECT anon_1.orders_c1, anon_1.orders_c2 FROM (SELECT {_QUALIFIED} FROM orders o LIMIT 10) AS "
        "anon_1 LEFT JOIN customers c ON c.id = anon_1.orders_c1"
    ),
    "ids": f"SELECT * FROM orders WHERE id IN ({_IDS})",
    "words": f"SELECT * FROM customers WHERE name IN ({_WORDS})",
    "ids of a subquery": (
        f"SELECT s.id FROM (SELECT id, amount FROM orders WHERE id IN ({_IDS})) s WHERE s.amount > 1"
    ),
    "ids in an expression": (
        f"WITH p AS (SELECT id, amount FROM orders WHERE id IN ({_IDS})) SELECT id, amount FROM p WHERE "
        "id NOT IN (1, 2)"
    ),
    "ids twice": (
        f"WITH p AS (SELECT id, amount FROM orders WHERE id IN ({_IDS})), q AS (SELECT id, amount FROM p "
        f"WHERE amount > 0) SELECT q.id, q.amount FROM q WHERE q.id IN ({_IDS})"
    ),
    "states": f"SELECT CASE {_STATES} ELSE 'x' END AS state, count(*) FROM orders GROUP BY 1",
    "states of a subquery": (
        f"SELECT state, count(*) FROM (SELECT CASE {_STATES} ELSE 'x' END AS state FROM orders) s GROUP BY state"
    ),
    "union": _UNION,
    "union, grouped": (
        f"SELECT what, sum(amount) FROM ({_UNION}) u GROUP BY what HAVING sum(amount) > 0 ORDER BY what"
    ),
    "union in an expression": (
        f"WITH u AS ({_UNION}), v AS (SELECT what, id, sum(amount) AS amount FROM u GROUP BY what, id) "
        "SELECT what, max(amount) FROM v WHERE id > 0 AND what <> 'c1' GROUP BY what"
    ),
    "pivot": f"SELECT customer_id, {_PIVOT} FROM orders GROUP BY customer_id",
    "pivot of an expression": (
        f"WITH p AS (SELECT customer_id, c1, amount FROM orders) SELECT customer_id, {_PIVOT} FROM p "
        "GROUP BY customer_id"
    ),
    "pivot of two": (
        "WITH p AS (SELECT customer_id, c1, amount FROM orders), q AS (SELECT customer_id, c1, "
        f"coalesce(amount, 0) AS amount FROM p) SELECT customer_id, {_PIVOT} FROM q GROUP BY customer_id"
    ),
    "pivot of three": (
        f"WITH p AS (SELECT customer_id, c1, amount FROM orders), q AS (SELECT customer_id, {_PIVOT} "
        "FROM p GROUP BY customer_id), r AS (SELECT customer_id, p1 + p2 AS p12, p3 FROM q) SELECT * "
        "FROM r WHERE p12 > p3 ORDER BY p12 DESC"
    ),
    "or": f"SELECT id FROM orders WHERE {_OR}",
    "or of a subquery": f"SELECT s.id FROM (SELECT id, customer_id, c1 FROM orders) s WHERE {_OR}",
    "windows": (
        "SELECT id, row_number() OVER w, rank() OVER w, dense_rank() OVER w, lag(amount) OVER w, "
        "lead(amount) OVER w, sum(amount) OVER (w ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) FROM orders "
        "WINDOW w AS (PARTITION BY customer_id ORDER BY created_at)"
    ),
    "newest of each": (
        "SELECT * FROM (SELECT o.*, row_number() OVER (PARTITION BY customer_id ORDER BY created_at "
        "DESC) AS n FROM orders o) s WHERE n = 1"
    ),
    "running total": (
        "WITH d AS (SELECT created_at AS day, sum(amount) AS amount FROM orders GROUP BY created_at) "
        "SELECT day, amount, sum(amount) OVER (ORDER BY day) AS total, avg(amount) OVER (ORDER BY day "
        "ROWS 6 PRECEDING) AS week, 100.0 * amount / sum(amount) OVER () AS share FROM d"
    ),
    "growth": (
        "WITH m AS (SELECT c1 AS month, sum(amount) AS amount FROM orders GROUP BY c1), l AS (SELECT "
        "month, amount, lag(amount) OVER (ORDER BY month) AS before FROM m) SELECT month, amount, "
        "before, CASE WHEN before IS NULL OR before = 0 THEN NULL ELSE round(100.0 * (amount - before) "
        "/ before) END AS growth FROM l ORDER BY month"
    ),
    "cohorts": (
        "WITH f AS (SELECT customer_id, min(c1) AS cohort FROM orders GROUP BY customer_id), a AS "
        "(SELECT o.customer_id, f.cohort, o.c1 - f.cohort AS age FROM orders o JOIN f ON f.customer_id "
        "= o.customer_id), s AS (SELECT cohort, count(DISTINCT customer_id) AS size FROM f GROUP BY "
        "cohort) SELECT a.cohort, a.age, count(DISTINCT a.customer_id) AS active, s.size, 1.0 * "
        "count(DISTINCT a.customer_id) / s.size AS kept FROM a JOIN s ON s.cohort = a.cohort GROUP BY "
        "a.cohort, a.age, s.size ORDER BY a.cohort, a.age"
    ),
    "funnel": (
        "WITH v AS (SELECT customer_id FROM orders WHERE c1 = 1), b AS (SELECT customer_id FROM orders "
        "WHERE c1 = 2 AND customer_id IN (SELECT customer_id FROM v)), p AS (SELECT customer_id FROM "
        "orders WHERE c1 = 3 AND customer_id IN (SELECT customer_id FROM b)) SELECT (SELECT count(*) "
        "FROM v), (SELECT count(*) FROM b), (SELECT count(*) FROM p)"
    ),
    "rfm": (
        "WITH r AS (SELECT customer_id, max(created_at) AS last, count(*) AS n, sum(amount) AS total "
        "FROM orders GROUP BY customer_id), s AS (SELECT customer_id, ntile(5) OVER (ORDER BY last) AS "
        "r, ntile(5) OVER (ORDER BY n) AS f, ntile(5) OVER (ORDER BY total) AS m FROM r) SELECT CASE "
        "WHEN r >= 4 AND f >= 4 AND m >= 4 THEN 'best' WHEN r >= 3 AND f >= 3 THEN 'loyal' WHEN r <= 2 "
        "AND f <= 2 THEN 'lost' ELSE 'other' END AS segment, count(*) FROM s GROUP BY 1"
    ),
    "abc": (
        "WITH t AS (SELECT customer_id, sum(amount) AS amount FROM orders GROUP BY customer_id), s AS "
        "(SELECT customer_id, amount, sum(amount) OVER (ORDER BY amount DESC) AS running, sum(amount) "
        "OVER () AS total FROM t), q AS (SELECT customer_id, amount, running / total AS share FROM s) "
        "SELECT customer_id, CASE WHEN share <= 0.8 THEN 'A' WHEN share <= 0.95 THEN 'B' ELSE 'C' END "
        "AS class FROM q"
    ),
    "exists": (
        "SELECT c.id FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id) "
        "AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.amount < 0)"
    ),
    "by Django": (
        'SELECT "customers"."id", "customers"."name", (SELECT U0."amount" FROM "orders" U0 WHERE '
        'U0."customer_id" = ("customers"."id") ORDER BY U0."created_at" DESC LIMIT 1) AS "latest", '
        'COUNT("orders"."id") AS "n" FROM "customers" LEFT OUTER JOIN "orders" ON ("customers"."id" = '
        '"orders"."customer_id") GROUP BY "customers"."id", "customers"."name" HAVING '
        'COUNT("orders"."id") > 2 ORDER BY "n" DESC LIMIT 21'
    ),
    "distinct": (
        "SELECT DISTINCT customer_id, c1 FROM (SELECT DISTINCT customer_id, c1, c2 FROM orders WHERE c1 "
        "BETWEEN 1 AND 9) s WHERE c1 BETWEEN 2 AND 8"
    ),
    "self join": (
        "WITH p AS (SELECT id, customer_id, amount, c1 FROM orders) SELECT a.id, b.id FROM p a JOIN p b "
        "ON a.customer_id = b.customer_id AND a.id < b.id LEFT JOIN p c ON c.customer_id = "
        "b.customer_id AND c.id > b.id WHERE c.id IS NULL"
    ),
    "top of each": (
        "SELECT c.name, t.total FROM customers c JOIN (SELECT customer_id, sum(amount) AS total, rank() "
        "OVER (ORDER BY sum(amount) DESC) AS place FROM orders GROUP BY customer_id) t ON t.customer_id "
        "= c.id WHERE t.place <= 10"
    ),
    "series": (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 365) SELECT n.x, "
        "coalesce(sum(o.amount), 0) FROM n LEFT JOIN orders o ON o.c1 = n.x GROUP BY n.x ORDER BY n.x"
    ),
    "tree": (
        "WITH RECURSIVE t AS (SELECT id, customer_id, 0 AS depth FROM orders WHERE customer_id IS NULL "
        "UNION ALL SELECT o.id, o.customer_id, t.depth + 1 FROM orders o JOIN t ON o.customer_id = t.id "
        "WHERE t.depth < 20) SELECT depth, count(*) FROM t GROUP BY depth"
    ),
    "nulls": "SELECT "
    + ", ".join(f"sum(CASE WHEN c{n} IS NULL THEN 1 ELSE 0 END) AS n{n}" for n in range(26))
    + ", count(*) FROM (SELECT * FROM orders) s",
    "patterns": "SELECT id FROM customers WHERE " + " OR ".join(f"name LIKE '%w{n}%'" for n in range(60)),
    "long patterns": "SELECT id FROM customers WHERE "
    + " OR ".join(f"name LIKE '%a longer pattern no {n}%'" for n in range(30)),
}
#: In the words of PostgreSQL alone.
POSTGRES: Final = {
    "rank from FROM": (
        "SELECT id, ts_rank(v, query) AS rank FROM docs, to_tsquery('english', 'cat & dog') query WHERE "
        "query @@ v ORDER BY rank DESC LIMIT 10"
    ),
    "rank, web search": (
        "SELECT id, ts_rank_cd(v, q) FROM docs CROSS JOIN websearch_to_tsquery('english', $1) AS q "
        "WHERE v @@ q ORDER BY 2 DESC LIMIT 10"
    ),
    "rank in place": (
        "SELECT id, ts_rank(v, plainto_tsquery('english', 'cat')) FROM docs WHERE v @@ "
        "plainto_tsquery('english', 'cat')"
    ),
    "rank of a text": "SELECT id, ts_rank(to_tsvector('english', title), to_tsquery('cat')) FROM docs",
    "JSON": (
        "SELECT data->'a'->>'b', data #>> '{a,b}', data @> '{\"a\": 1}', jsonb_path_query_first(data, "
        "'$.a[*] ? (@.b > 1)') FROM docs WHERE data ? 'a' AND data @? '$.a[*] ? (@ > 2)'"
    ),
    "JSON, counted": (
        "SELECT e->>'kind', count(*) FROM docs, LATERAL jsonb_array_elements(data->'events') e WHERE "
        "e->>'at' > '2026' GROUP BY 1"
    ),
    "regular expressions": (
        "SELECT id FROM docs WHERE title ~* '(cat|dog|bird)s?' AND title !~ '^x' AND "
        "regexp_replace(title, '\\s+', ' ', 'g') ~ 'a'"
    ),
    "any pattern": "SELECT id FROM docs WHERE title ILIKE ANY (ARRAY['%a%', '%b%', '%c%'])",
    "distinct on": (
        "SELECT DISTINCT ON (customer_id) customer_id, id, amount FROM orders ORDER BY customer_id, created_at DESC"
    ),
    "filtered": (
        "SELECT customer_id, count(*) FILTER (WHERE c1 = 1), percentile_cont(0.5) WITHIN GROUP (ORDER "
        "BY amount) FROM orders GROUP BY customer_id"
    ),
    "grouping sets": "SELECT c1, c2, sum(amount), grouping(c1) FROM orders GROUP BY ROLLUP (c1, c2)",
    "days": (
        "SELECT d::date, coalesce(sum(o.amount), 0) FROM generate_series('2026-01-01'::date, "
        "'2026-12-31', '1 day') d LEFT JOIN orders o ON o.created_at = d GROUP BY 1"
    ),
    "lateral": (
        "SELECT c.id, l.amount, l.n FROM customers c LEFT JOIN LATERAL (SELECT o.amount, o.c1 AS n FROM "
        "orders o WHERE o.customer_id = c.id ORDER BY o.created_at DESC LIMIT 3) l ON true WHERE "
        "l.amount > 1"
    ),
    "arrays": (
        "SELECT unnest(string_to_array(title, ',')), array_agg(DISTINCT id) FROM docs WHERE tags && "
        "ARRAY['a', 'b'] GROUP BY 1"
    ),
    "dates": (
        "SELECT date_trunc('month', created_at), to_char(created_at, 'YYYY-MM'), extract(dow FROM "
        "created_at), age(now(), created_at) FROM orders WHERE created_at > now() - interval '90 days'"
    ),
}
