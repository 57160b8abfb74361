"""What a browser shows of a job: a document made of its history, and the page that draws it."""
