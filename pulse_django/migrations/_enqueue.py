"""The function ``pulse_enqueue()``: it adds a job in the caller's transaction, as ``enqueue()`` does.

It has the rights of the tables' owner, so a role that may call it needs no other right. It reads what workers have
written down of the task, and makes keys as ``unique/keys.py`` and ``limits/keys.py`` make them. ``{home}`` is the
schema of the tables.
"""

from __future__ import annotations

import json

from pulse_django.queue.database.job_queries import is_expired
from pulse_django.queue.words.bounds import HIGHEST_PRIORITY, LOWEST_PRIORITY, MAX_META_BYTES, MAX_TAG
from pulse_django.queue.words.lane_keys import LONGEST_KEY
from pulse_django.queue.words.masks import MAX_VALUE
from pulse_django.queue.words.options import COLUMNS, JOB_OPTIONS
from pulse_django.queue.words.payloads import MAX_DEPTH, MAX_DIGITS
from pulse_django.run.notify import CHANNEL, NUMBERS, SOON
from pulse_django.unique.clauses import HOLDS_KEY, conflict_of
from pulse_django.unique.rule import Unique

_ARGUMENTS = (
    "task text, args jsonb DEFAULT '[]', kwargs jsonb DEFAULT '{}', queue text DEFAULT NULL, "
    "priority int DEFAULT NULL, run_after timestamptz DEFAULT NULL, expires timestamptz DEFAULT NULL, "
    "tags text[] DEFAULT NULL, meta jsonb DEFAULT NULL, idempotency_key text DEFAULT NULL, notify boolean DEFAULT false"
)
NAME = f"pulse_enqueue({', '.join(one.split()[1] for one in _ARGUMENTS.split(', '))})"

_WRITTEN = (
    *("id", "task", "queue", "priority", "args", "kwargs", "payload_bytes", "search_terms", "next_run_at"),
    *("expires_at", "sensitive", "tags", "meta", "lane_key", "ready", "unique_key", "unique_until_start", "on_dead"),
    *COLUMNS,
)
_INSERT = (
    f"INSERT INTO {{home}}.pulse_django_job_hot AS job ({', '.join(_WRITTEN)}) "  # noqa: S608 - made of constants
    f"VALUES ({', '.join(f'made.{name}' for name in _WRITTEN)}) {{conflict}} RETURNING job.id INTO answer;"
)
_RULES: dict[str, Unique] = {
    "nothing": Unique(),
    "hold": Unique(on_conflict="follow"),
    "replace": Unique(on_conflict="replace"),
    "debounce": Unique(on_conflict="debounce", max_delay=1),
}
_INSERTS = "\n        ".join(
    f"WHEN '{name}' THEN {_INSERT.replace('{conflict}', conflict_of(rule).conflict.replace('%s', 'longest'))}"
    for name, rule in _RULES.items()
)
_DEFAULTS = json.dumps({one.column: one.default for one in JOB_OPTIONS if one.default is not None})
_MATERIAL = "pg_catalog.format(rule ->> 'form', pg_catalog.string_agg(before || (spelt ->> name), ',' ORDER BY place))"
_INFINITY = f"{2**1024 - 2**970}::numeric"  # Python reads a fraction of this size or a larger one as infinity
_DIGITS_OF_FLOAT = 308
_REFUSE = "RAISE EXCEPTION 'pulse_enqueue: %: %', pulse_enqueue.task, wrong USING ERRCODE = 'invalid_parameter_value';"
_HASH = "pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to({}, 'UTF8')), 'hex')"

FUNCTION = f"""
CREATE OR REPLACE FUNCTION {{home}}.pulse_enqueue({_ARGUMENTS}) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
#variable_conflict use_column
DECLARE
    made {{home}}.pulse_django_job_hot;
    said jsonb := (SELECT options FROM {{home}}.pulse_django_declared_task WHERE name::text = pulse_enqueue.task);
    rule jsonb := said -> 'unique';
    longest float8 := (rule ->> 'longest')::float8;
    by_name jsonb;
    given jsonb;
    spelt jsonb;
    lane jsonb;
    key text;
    wrong text;
    answer bigint;
    is_over boolean;
BEGIN
    -- Before any work on what the caller gave.
    wrong := CASE
        WHEN said IS NULL THEN 'no worker has declared this task'
        WHEN said ? 'refused' THEN said ->> 'refused'
        WHEN GREATEST(pg_catalog.octet_length(args::text), pg_catalog.octet_length(kwargs::text))
            > (said ->> 'most_bytes')::int THEN 'the arguments are longer than PULSE[''MAX_PAYLOAD_BYTES''] allows'
        WHEN pg_catalog.octet_length(meta::text) > {MAX_META_BYTES}
            THEN 'meta: an object of at most {MAX_META_BYTES} bytes'
        WHEN priority NOT BETWEEN {LOWEST_PRIORITY} AND {HIGHEST_PRIORITY}
            THEN 'priority: it is between {LOWEST_PRIORITY} and {HIGHEST_PRIORITY}'
        WHEN pg_catalog.jsonb_path_exists(
            pg_catalog.jsonb_build_array(args, kwargs, meta),
            'strict $.**{{{MAX_DEPTH + 1}}} ? (@.type() == "array" || @.type() == "object")'
        ) THEN 'nested more than {MAX_DEPTH} levels deep'
    END;
    IF wrong IS NOT NULL THEN
        {_REFUSE}
    END IF;
    IF pg_catalog.jsonb_typeof(args) = 'array' AND pg_catalog.jsonb_typeof(kwargs) = 'object' THEN
        SELECT COALESCE(pg_catalog.jsonb_object_agg(name, value), '{{}}') INTO by_name
        FROM ROWS FROM (
            pg_catalog.jsonb_array_elements_text(said -> 'names'), pg_catalog.jsonb_array_elements(args)
        ) AS pair (name, value)
        WHERE name IS NOT NULL AND value IS NOT NULL;
    END IF;
    given := by_name || kwargs;
    made := pg_catalog.jsonb_populate_record(
        NULL::{{home}}.pulse_django_job_hot, '{_DEFAULTS}'::jsonb || (said -> 'columns')
    );
    made.task := pulse_enqueue.task;
    made.queue := COALESCE(pulse_enqueue.queue, made.queue);
    made.priority := COALESCE(pulse_enqueue.priority, made.priority);
    made.args := pulse_enqueue.args;
    made.kwargs := pulse_enqueue.kwargs;
    made.payload_bytes := pg_catalog.octet_length(args::text) + pg_catalog.octet_length(kwargs::text);
    made.next_run_at := COALESCE(run_after, clock_timestamp());
    made.expires_at := COALESCE(
        expires, clock_timestamp() + (said ->> 'expires_in')::float8 * interval '1 second'
    );
    made.meta := NULLIF(pulse_enqueue.meta, '{{}}'::jsonb);
    made.idempotency_key := pulse_enqueue.idempotency_key;
    made.tags := (
        SELECT pg_catalog.array_agg(tag ORDER BY first)
        FROM (
            SELECT tag, pg_catalog.min(place) AS first
            FROM pg_catalog.unnest(made.tags || pulse_enqueue.tags) WITH ORDINALITY AS one (tag, place)
            GROUP BY tag
        ) AS once
    );
    lane := COALESCE(said -> 'lanes' -> made.queue::text, said -> 'lanes' -> '');
    made.search_terms := (
        SELECT pg_catalog.array_agg(name || ':' || pg_catalog.left(text, {MAX_VALUE}) ORDER BY place)
        FROM pg_catalog.jsonb_array_elements_text(said -> 'searchable') WITH ORDINALITY AS searched (name, place)
        CROSS JOIN LATERAL (
            SELECT CASE pg_catalog.jsonb_typeof(given -> name)
                WHEN 'number' THEN pg_catalog.regexp_replace(given ->> name, '([.][0-9]+?)0+$', '\\1')
                WHEN 'string' THEN NULLIF(given ->> name, '')
                WHEN 'boolean' THEN given ->> name
            END
        ) AS of_name (text)
        WHERE text IS NOT NULL
    );
    -- Arguments as keys spell them. A null is what Python would spell in another way.
    spelt := (said -> 'defaults') || COALESCE((
        SELECT pg_catalog.jsonb_object_agg(name, CASE
            WHEN pg_catalog.jsonb_typeof(value) NOT IN ('array', 'object') AND value::text !~ '^-?[0-9]+[.]|[^ -~]'
            THEN value::text
        END)
        FROM pg_catalog.jsonb_each(given) AS argument (name, value)
    ), '{{}}');
    made.unique_until_start := COALESCE((rule ->> 'until_start')::boolean, false);
    made.unique_key := (
        SELECT CASE WHEN pg_catalog.count(*) = pg_catalog.count(spelt ->> name) THEN {_HASH.format(_MATERIAL)} END
        FROM ROWS FROM (
            pg_catalog.jsonb_array_elements_text(rule -> 'by'), pg_catalog.jsonb_array_elements_text(rule -> 'before')
        ) WITH ORDINALITY AS one (name, before, place)
        WHERE spelt ? name OR before = ''
    );
    key := (
        SELECT CASE
            WHEN pg_catalog.bool_or(spelt ? name AND spelt ->> name IS NULL) THEN NULL
            WHEN pg_catalog.count(*) > 1
                THEN '[' || pg_catalog.string_agg(COALESCE(spelt ->> name, 'null'), ',' ORDER BY place) || ']'
            WHEN (pg_catalog.min(spelt ->> name)::jsonb #>> '{{}}') ~ '^[ -~]*$'
                THEN pg_catalog.min(spelt ->> name)::jsonb #>> '{{}}'
            ELSE COALESCE(pg_catalog.min(spelt ->> name), 'null')
        END
        FROM pg_catalog.jsonb_array_elements_text(lane -> 'names') WITH ORDINALITY AS one (name, place)
    );
    key := CASE WHEN pg_catalog.length(key) > {LONGEST_KEY} THEN {_HASH.format("key")} ELSE key END;
    made.lane_key := COALESCE(
        lane ->> 'key', (lane ->> 'limiter') || ':' || pg_catalog.left({_HASH.format("key")}, 4) || key
    );
    made.ready := made.lane_key = '' OR run_after IS NULL;
    -- Python's limits. Most calls are shorter than such a number.
    IF pg_catalog.octet_length(pg_catalog.concat(args, kwargs, made.meta)) > {_DIGITS_OF_FLOAT} THEN
        SELECT CASE WHEN pg_catalog.bool_or(text !~ '[.]')
            THEN 'a whole number of more than {MAX_DIGITS} digits, which Python cannot read'
            ELSE 'a number that Python reads as infinity'
        END INTO wrong
        FROM pg_catalog.jsonb_path_query(
            pg_catalog.jsonb_build_array(args, kwargs, made.meta), 'strict $.** ? (@.type() == "number")'
        ) AS one (number)
        CROSS JOIN LATERAL (SELECT pg_catalog.ltrim(number::text, '-')) AS spelled (text)
        WHERE CASE WHEN text ~ '[.]' THEN text::numeric >= {_INFINITY} ELSE pg_catalog.length(text) > {MAX_DIGITS} END
        HAVING pg_catalog.count(*) > 0;
    END IF;
    wrong := CASE
        WHEN wrong IS NOT NULL THEN wrong
        WHEN lane ? 'refused' THEN lane ->> 'refused'
        WHEN given IS NULL THEN 'args is a JSON array, and kwargs is a JSON object'
        WHEN pg_catalog.jsonb_array_length(args) > (said ->> 'most')::int
            OR by_name ?| ARRAY(SELECT pg_catalog.jsonb_object_keys(kwargs))
            OR kwargs - ARRAY(SELECT pg_catalog.jsonb_array_elements_text(said -> 'allowed')) <> '{{}}'
                AND said ? 'allowed'
            OR NOT given ?& ARRAY(SELECT pg_catalog.jsonb_array_elements_text(said -> 'required'))
            THEN 'its handler does not accept these arguments'
        WHEN rule IS NOT NULL AND made.unique_key IS NULL OR made.lane_key IS NULL
            THEN 'a key is made of an argument that is not given, or is no whole number, boolean, null or text in ASCII'
        WHEN made.queue::text !~ '^[^[:cntrl:]]+$' THEN 'queue: it is empty or has control characters'
        WHEN made.idempotency_key::text !~ '^[^[:cntrl:]]+$'
            THEN 'idempotency_key: it is empty or has control characters'
        WHEN idempotency_key IS NOT NULL AND rule IS NOT NULL THEN 'a unique job has no idempotency_key'
        WHEN idempotency_key IS NOT NULL AND (said ->> 'has_shards')::boolean
            THEN 'idempotency_key: it belongs to one of several shards. Enqueue it from Python'
        WHEN EXISTS (
            SELECT FROM pg_catalog.unnest(made.tags) AS one (tag)
            WHERE (tag ~ '^[^[:space:][:cntrl:]]{{1,{MAX_TAG}}}$') IS NOT TRUE
        ) THEN 'tags: each has 1 to {MAX_TAG} characters without spaces'
        WHEN pg_catalog.jsonb_typeof(made.meta) <> 'object'
            THEN 'meta: an object of at most {MAX_META_BYTES} bytes'
        WHEN expires <= run_after THEN 'expires: the job would expire before it is due'
        WHEN rule ->> 'conflict' = 'debounce' AND run_after IS NULL THEN 'on_conflict=''debounce'' requires run_after'
    END;
    IF wrong IS NOT NULL THEN
        {_REFUSE}
    END IF;
    LOOP
        made.id := pg_catalog.nextval('{{home}}.pulse_django_job_id_seq'::regclass);
        IF idempotency_key IS NOT NULL THEN
            INSERT INTO {{home}}.pulse_django_key (task, key, job_id) VALUES (made.task, made.idempotency_key, made.id)
            ON CONFLICT (task, key) DO NOTHING;
            IF NOT FOUND THEN
                SELECT job.id INTO answer
                FROM {{home}}.pulse_django_key AS held
                JOIN {{home}}.pulse_django_job AS job ON job.id = held.job_id
                WHERE held.task::text = made.task::text AND held.key::text = made.idempotency_key::text;
                EXIT WHEN FOUND;
                -- Its job was deleted by hand.
                DELETE FROM {{home}}.pulse_django_key AS held
                WHERE held.task::text = made.task::text AND held.key::text = made.idempotency_key::text
                    AND NOT EXISTS (SELECT FROM {{home}}.pulse_django_job WHERE id = held.job_id);
                CONTINUE;
            END IF;
        END IF;
        CASE COALESCE(rule ->> 'conflict', '')
        WHEN '' THEN {_INSERT.replace("{conflict}", "")}
        {_INSERTS}
        END CASE;
        EXIT WHEN FOUND;
        SELECT job.id, {is_expired("job.")} INTO answer, is_over
        FROM {{home}}.pulse_django_job_hot AS job
        WHERE job.task::text = made.task::text AND job.unique_key::text = made.unique_key::text AND {HOLDS_KEY}
            AND (job.attempts = 0 OR NOT made.unique_until_start)
        LIMIT 1;
        IF is_over OR FOUND AND (rule ->> 'raises')::boolean THEN
            RAISE EXCEPTION 'pulse_enqueue: %: job % has its unique key%', made.task, answer,
                CASE WHEN is_over THEN ' and has expired. A watchdog cancels it: try again then' ELSE '' END
                USING ERRCODE = 'unique_violation';
        END IF;
        EXIT WHEN FOUND;
        -- It has started and was enqueued until its end. The declaration has changed since (unique/clauses.py).
        UPDATE {{home}}.pulse_django_job_hot AS job
        SET unique_until_start = true
        WHERE job.task::text = made.task::text AND job.unique_key::text = made.unique_key::text AND {HOLDS_KEY}
            AND job.attempts > 0 AND made.unique_until_start;
    END LOOP;
    IF notify AND (run_after IS NULL OR run_after <= clock_timestamp() + interval '{SOON.seconds} s') THEN
        PERFORM pg_catalog.pg_notify('{CHANNEL}', pg_catalog.concat(
            made.queue, pg_catalog.chr(2), pg_catalog.floor(pg_catalog.random() * {NUMBERS}::float8), '.0'
        ));
    END IF;
    RETURN answer;
END
$function$;
REVOKE EXECUTE ON FUNCTION {{home}}.{NAME} FROM PUBLIC
"""  # noqa: S608 - made of constants


DROP = f"DROP FUNCTION IF EXISTS {NAME}"
