"""Operations on many jobs, and the output of the commands. Commands and the admin use them."""
