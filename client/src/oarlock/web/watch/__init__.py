"""Lists of the API, each kept current by one watch, for those who look at it and may."""
