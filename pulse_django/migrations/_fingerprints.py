"""The fingerprint of errors as the first releases had it, for the migrations that made and drop its index."""

from django.db.models import Func, TextField


class FirstFingerprint(Func):
    template = (
        "(pg_catalog.left(pg_catalog.regexp_replace(pg_catalog.left(%(expressions)s, 400),"
        " '\\m(0x)?[0-9a-f]*[0-9][0-9a-f]*(-[0-9a-f]+)*\\M|[0-9]+', '#', 'gi'), 200) COLLATE \"C\")"
    )
    arity = 1
    output_field = TextField()
