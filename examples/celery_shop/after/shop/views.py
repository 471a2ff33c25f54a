from django.db import transaction
from django.http import JsonResponse

from shop.models import Order
from shop.tasks import choose_cheapest, place_order, refresh_prices


@transaction.atomic
def order(request):
    made = Order.objects.create(email=request.POST["email"])
    place_order(made.pk)  # a part of the transaction: no order without its jobs, and no jobs without their order
    return JsonResponse({"order": made.pk})


def refresh(request):
    return JsonResponse({"id": refresh_prices.enqueue().id})


def cheapest(request, result_id):
    started = refresh_prices.get_result(result_id)
    if not started.is_finished:
        return JsonResponse({"ready": False, "supplier": None})
    result = choose_cheapest.get_result(str(started.return_value))
    supplier = result.return_value if result.is_finished else None
    return JsonResponse({"ready": result.is_finished, "supplier": supplier})
