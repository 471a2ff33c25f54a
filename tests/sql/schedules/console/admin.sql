-- ScheduleAdmin.delete_model()
DELETE FROM pulse_django_tick WHERE pulse_django_tick.schedule_id IN (:schedule_id);

-- ScheduleAdmin.delete_model()
DELETE FROM pulse_django_schedule WHERE pulse_django_schedule.id IN (:id);
