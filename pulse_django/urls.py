"""URLs of pages for users without staff status: ``path("pulse/", include("pulse_django.urls"))``."""

from django.urls import path

from . import views

app_name = "pulse_django"
urlpatterns = [
    path("event/<str:token>/", views.send_signed_event, name="send_signed_event"),
    path("progress/<str:token>/", views.job_progress, name="job_progress"),
    path("progress/<str:token>/bar/", views.job_progress_bar, name="job_progress_bar"),
]
