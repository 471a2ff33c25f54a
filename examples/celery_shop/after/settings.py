PULSE = {"QUEUES": []}  # workers serve all queues, unless they are told otherwise
