from celery.result import AsyncResult
from django.db import transaction
from django.http import JsonResponse

from shop.models import Order
from shop.tasks import place_order, refresh_prices


@transaction.atomic
def order(request):
    made = Order.objects.create(email=request.POST["email"])
    transaction.on_commit(lambda: place_order(made.pk))
    return JsonResponse({"order": made.pk})


def refresh(request):
    return JsonResponse({"id": refresh_prices.delay().id})


def cheapest(request, result_id):
    result = AsyncResult(AsyncResult(result_id).get(timeout=1))
    return JsonResponse({"ready": result.ready(), "supplier": result.result if result.ready() else None})
