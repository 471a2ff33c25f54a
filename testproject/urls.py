"""The admin, the pages of signed links, the page for Prometheus and the probe are all that the test project serves."""

from django.conf import settings
from django.contrib import admin
from django.urls import include, path

from pulse_django.metrics.exporters.health import health
from pulse_django.metrics.exporters.prometheus import metrics

urlpatterns = [
    path("admin/", admin.site.urls),
    path("pulse/", include("pulse_django.urls")),
    path("metrics", metrics),
    path("health", health),
]
if settings.THEME == "grappelli":
    urlpatterns.insert(0, path("grappelli/", include("grappelli.urls")))
