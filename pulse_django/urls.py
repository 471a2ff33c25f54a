"""Pages for people who are no staff: ``path("pulse/", include("pulse_django.urls"))``."""

from django.urls import path

from . import views

app_name = "pulse_django"
urlpatterns = [path("event/<str:token>/", views.send_signed_event, name="send_signed_event")]
