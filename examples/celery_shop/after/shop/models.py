from django.db import models


class Order(models.Model):
    email = models.EmailField()
    status = models.CharField(max_length=20, default="new")


class Charge(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    receipt = models.CharField(max_length=50)
