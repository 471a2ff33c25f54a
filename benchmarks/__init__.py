"""What Pulse costs and how fast it is. Run by hand on a quiet machine; it is not part of the package.

Importing this sets Django up, so that its modules may import models in any order.
"""

import os

import django
from django.apps import apps

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
os.environ["DEBUG"] = "0"  # Django keeps every statement otherwise, and that is what would be measured

if not apps.ready:  # a worker that loads our tasks has done it
    django.setup()
